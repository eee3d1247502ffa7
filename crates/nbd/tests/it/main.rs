//! Integration tests of NBD: our client and server over a simulated network, and hostile peers.

mod certificates;
mod client_limits;
mod contexts;
mod hostile;
mod portal;
mod reconnect;
mod scene;
mod server;
mod tls;
