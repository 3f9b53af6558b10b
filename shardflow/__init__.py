"""ShardFlow: speculative decoding of one large language model over machines that are far apart."""

__version__ = "0.1.0"
