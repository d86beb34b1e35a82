"""`python -m fscil_bench` is `fscil-bench`."""

from fscil_bench.cli.app import main

if __name__ == "__main__":
    main()
