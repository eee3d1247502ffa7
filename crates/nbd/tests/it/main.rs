//! Integration tests of NBD: our client and our server over a simulated network, and hostile peers.

mod hostile;
mod scene;
mod served;
mod trouble;
