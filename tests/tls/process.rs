//! The binary: its ports, its signal, and whether it is healthy.
