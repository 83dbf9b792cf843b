from sdssm.cli import main

raise SystemExit(main())
