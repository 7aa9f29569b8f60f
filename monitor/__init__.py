"""The sidecar: would this prediction have been different for another group?"""
