"""Cross-encoders as graphs for a CPU, in the formats of ONNX Runtime and OpenVINO, in float32 or int8.

A graph takes passages of one length, so that it needs no padding and no mask: (passages, tokens) ids, and token types
where the encoder has them, give (passages,) scores. How passages are split and pooled stays outside of it.
"""
