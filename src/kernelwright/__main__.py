"""`python -m kernelwright`: the command line where the script is not on PATH."""

from kernelwright.cli import script

if __name__ == "__main__":
    script()
