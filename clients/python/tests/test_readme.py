"""The examples of README.md print what they promise, with the server at PENSTOCK_URL."""

import os
import re
import subprocess
import sys
from pathlib import Path

URL = os.environ["PENSTOCK_URL"]
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.S)


def test_examples_print_what_they_promise() -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python")
    for program, output in examples:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("ws://localhost:8080/ws", URL)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ran.stdout, ran.stderr) == (output, ""), program
