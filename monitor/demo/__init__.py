"""`evenhand demo`: fit, serve and log on a synthetic world with known truth, in three parts."""
