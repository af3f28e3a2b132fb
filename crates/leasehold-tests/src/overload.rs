//! A server that says nothing while many tasks try.
