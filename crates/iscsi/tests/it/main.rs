//! Integration tests of SCSI: whole commands to a unit over a simulated drive.

mod asking;
mod hostile;
mod initiating;
mod media;
mod reserving;
mod scene;
mod tgt;
