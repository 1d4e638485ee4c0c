"""An encoder small enough that a benchmark of it takes no time."""

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.2,  # at BERT's 0.02 a network this narrow gives every document the same score
}
VOCABULARY = 1000
