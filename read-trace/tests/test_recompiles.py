"""Why torch.compile compiled again, as its log says it."""

import json

from reader_helpers.events import op, step, write
from trace_reader import cli
from trace_reader.analysis.trace.recompiles import Recompiled, recompiles

AT = "V1123 15:11:24.821000 15650 torch/_dynamo/guards.py:6374] [0/1] [__recompiles]"
SIZE = "tensor 'args[0]' size mismatch at index 0. expected 16, actual another"
LOG = f"""a line of the program
{AT} Recompiling function inner in /home/me/torch/_dynamo/external_utils.py:67
{AT}     triggered by the following guard failure(s):
{AT}     - 0/0: {SIZE.replace("another", "15")}
{AT}
{AT} Recompiling function inner in /home/me/torch/_dynamo/external_utils.py:67
{AT}     triggered by the following guard failure(s):
{AT}     - 0/1: 2 <= args[0].size()[0]  # return F.linear(input, self.weight)
{AT}     - 0/0: {SIZE.replace("another", "1")}
{AT} Recompiling function step in train.py:9
"""


def test_functions_and_their_guards_are_counted():
    assert recompiles(LOG) == (
        Recompiled("inner", "_dynamo/external_utils.py:67", 2, ((SIZE, 2), ("2 <= args[0].size()[0]", 1))),
        Recompiled("step", "train.py:9", 1, ()),
    )
    assert recompiles("nothing of that kind\n") == ()
    # A guard that fails for two entries of the cache fails in one recompilation.
    twice = f"{AT}     - 0/2: {SIZE.replace('another', '7')}\n{AT} Recompiling function step"
    assert recompiles(LOG.replace(f"{AT} Recompiling function step", twice)) == recompiles(LOG)


def test_the_report_says_why(tmp_path, capsys):
    trace, log = write(tmp_path / "t.json", step(0, 0, 100), op("aten::mm", 0, 50)), tmp_path / "log.txt"
    log.write_text(LOG)
    assert cli.main([trace, "--recompiles", str(log)]) == 0
    assert (
        "\nCompiled again (TORCH_LOGS=recompiles): the function, and the guards that failed\n"
        "  inner (_dynamo/external_utils.py:67), 2 times\n"
    ) in capsys.readouterr().out
    assert cli.main([trace, "--recompiles", str(log), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["recompiles"]
    assert [(finding["function"], finding["times"], finding["guards"][:1]) for finding in told] == [
        ("inner", 2, [[SIZE, 2]]),
        ("step", 1, []),
    ]


def test_a_log_that_says_nothing_or_is_not_there(tmp_path, capsys):
    trace, log = write(tmp_path / "t.json", step(0, 0, 100), op("aten::mm", 0, 50)), tmp_path / "log.txt"
    assert cli.main([trace, "--recompiles", str(log)]) == 2
    assert capsys.readouterr().err == f"error: {log}: No such file or directory\n"
    log.write_text("nothing\n")
    assert cli.main([trace, "--recompiles", str(log)]) == 2
    assert capsys.readouterr().err.endswith("record with TORCH_LOGS=recompiles, and keep stderr\n")
    assert cli.main([trace, trace, "--recompiles", str(log)]) == 2
    assert capsys.readouterr().err == "error: --recompiles is of one trace, got 2\n"
