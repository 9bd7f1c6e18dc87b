"""What the tests ask of a page in a browser."""

# The slices that are lit in panel k: name, start and duration in us.
LIT = """(k) => { const p = report.panels[k], found = []; if (p.mask) for (let i = 0; i < p.n; i++) if (p.mask[i])
found.push([p.names[p.name[i]], p.start[i] / 1000, p.duration[i] / 1000]); return found; }"""
