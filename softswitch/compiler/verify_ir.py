def verify_program(p):
    pass
