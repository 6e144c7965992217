from fastgcn.cli import main

main()
