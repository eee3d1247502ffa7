//! A group of one database on a simulated drive.

use crate::model::{self, Rows};
use maildb::{Database, DatabaseLocation, Error, Instance, InstanceConfig};
use std::rc::Rc;
use world::{
    BlockDevice, Buffer, ByteOffset, Directory, ExtentDirectory, World,
    sim::{DriveOptions, SimDrive, SimLimits, Simulation},
};

pub const DATABASE: &str = "priv1.edb";

/// A simulation with one drive and a directory on it.
pub struct SimulatedDrive {
    pub simulation: Simulation,
    pub drive: Rc<SimDrive>,
}

impl SimulatedDrive {
    /// A new drive with an empty directory.
    pub fn formatted(seed: u64, options: DriveOptions) -> Self {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(options);
        let formatted = Rc::clone(&drive) as Rc<dyn BlockDevice>;
        let format = |_| async move { ExtentDirectory::format(formatted).await.map(drop) };
        simulation.run(SimLimits::generous(), format).completed().expect("a new drive can be formatted");
        Self { simulation, drive }
    }

    /// Runs `main` over the drive's directory.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        main: impl FnOnce(World, Rc<dyn Directory>) -> F + 'static,
    ) -> T {
        let drive = Rc::clone(&self.drive) as Rc<dyn BlockDevice>;
        let outcome = self.simulation.run(SimLimits::generous(), |world| async move {
            let directory = ExtentDirectory::open(drive).await.expect("the drive has a directory");
            main(world, Rc::new(directory)).await
        });
        outcome.completed()
    }
}

/// Opens the group whose files are in `directory`.
pub async fn open(
    world: &World,
    directory: &Rc<dyn Directory>,
    config: InstanceConfig,
) -> Result<Instance, Error> {
    let location = DatabaseLocation { directory: Rc::clone(directory), file_name: DATABASE.to_owned() };
    Instance::open(world, Rc::clone(directory), vec![location], config).await
}

/// A whole file.
pub async fn read_file(directory: &Rc<dyn Directory>, name: &str) -> Vec<u8> {
    let file = directory.open(name).await.expect("it exists");
    let whole = Buffer::zeroed(file.geometry().size.0 as usize);
    file.read(ByteOffset(0), vec![whole]).await.expect("it can be read")[0].to_vec()
}

/// All rows; none if the table was never created.
pub async fn read_all(database: &Database) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    let Some(table) = database.table("Mail") else { return Ok(rows) };
    let mut cursor = database.cursor(&table, &[])?;
    loop {
        let batch = cursor.next_rows().await?;
        if batch.is_empty() {
            return Ok(rows);
        }
        rows.extend(batch.into_iter().map(model::from_values));
    }
}
