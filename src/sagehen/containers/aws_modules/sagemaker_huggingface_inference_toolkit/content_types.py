"""Media types, by AWS's names."""

JSON = "application/json"
CSV = "text/csv"
X_IMAGE = "image/x-image"
AUDIO = "audio/x-audio"
ANY = "*/*"
UTF8_TYPES = [JSON, CSV]
IMAGE_TYPES = ["image/png", "image/jpeg", "image/tiff", "image/bmp", "image/gif", "image/webp"]
IMAGE_TYPES += [X_IMAGE]
AUDIO_TYPES = ["audio/x-flac", "audio/mpeg", "audio/wave", "audio/wav", "audio/x-wav", "audio/ogg"]
AUDIO_TYPES += ["audio/x-audio", "audio/webm", "audio/mp4"]
