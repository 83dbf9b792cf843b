try:
    from sdssm.cli import main

    code = main()
except KeyboardInterrupt:
    code = 130
raise SystemExit(code)
