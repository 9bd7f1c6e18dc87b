"""What the lessons share: flags, device, recording, artifacts, and the Hub."""
