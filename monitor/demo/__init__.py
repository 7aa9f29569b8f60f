"""`evenhand demo`: the main job from end to end, chapter by chapter, on a world of known truth."""
