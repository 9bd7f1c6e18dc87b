"""The networks of the lessons on language models and on several GPUs."""
