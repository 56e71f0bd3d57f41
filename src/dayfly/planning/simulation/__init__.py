"""A whole run in virtual time, for any number of workers, with all that may happen to it.

    scenario ----> chance      what is random: slower steps, deaths, cold starts
    profile  ----> ranks       what is left of a function's link to the store
                   phases      how long a collective occupies it
                   rounds      when each worker has computed, and when all have the sum
                   fleet       who lives, dies, hands over and starts again
                   simulate    round after round, to the end

Times of workers are arrays (N,), so ten thousand workers take little longer than ten.
"""
