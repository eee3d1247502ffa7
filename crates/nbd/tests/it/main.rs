//! Integration tests of NBD: our client and our server over a simulated network, and hostile peers.

mod certificates;
mod crowds;
mod hostile;
mod scene;
mod served;
mod tls;
mod trouble;
