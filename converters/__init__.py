"""From a SavedModel to a bundle. TensorFlow is imported here alone, and only in child processes."""
