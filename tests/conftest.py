from hypothesis import settings

# the machine is noisy: no deadline, and the same examples each time
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
