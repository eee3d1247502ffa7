//! Groups, volumes, owners: how the chosen storage is divided.
