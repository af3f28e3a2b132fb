//! Every operation, cut at each of its messages.
