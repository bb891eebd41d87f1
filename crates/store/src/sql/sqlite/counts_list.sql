SELECT lane, state, tasks FROM counts WHERE tasks > 0
