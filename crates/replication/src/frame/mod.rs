pub mod bytes;
