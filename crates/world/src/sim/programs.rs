//! Simulated programs: async functions by name, which take virtual time.

use crate::{
    IoError, IoErrorKind, IoResult, LocalFuture, World,
    program::{ProgramCall, ProgramEnd, ProgramResult, ProgramText, Programs},
    with_deadline,
};
use std::{cell::RefCell, collections::BTreeMap, future::Future, rc::Rc};

/// Runs a program to its exit code.
type SimProgram = dyn Fn(ProgramCall, ProgramWriter) -> LocalFuture<i32>;

/// The programs of one simulated machine.
pub struct SimPrograms {
    world: World,
    programs: RefCell<BTreeMap<String, Rc<SimProgram>>>,
}

/// Takes the output of a program.
#[derive(Clone, Default)]
pub struct ProgramWriter(Rc<RefCell<ProgramText>>);

impl ProgramWriter {
    pub fn write(&self, bytes: &[u8]) {
        self.0.borrow_mut().push(bytes);
    }
}

impl SimPrograms {
    pub fn new(world: &World) -> Self {
        Self { world: world.clone(), programs: RefCell::default() }
    }

    /// Installs a program, which returns its exit code, or replaces it. At the time limit and the grace after it
    /// its future is dropped; a task that it spawned goes on, like a process outside the group.
    pub fn install<F: Future<Output = i32> + 'static>(
        &self,
        name: &str,
        program: impl Fn(ProgramCall, ProgramWriter) -> F + 'static,
    ) {
        let program: Rc<SimProgram> = Rc::new(move |call, writer| Box::pin(program(call, writer)));
        self.programs.borrow_mut().insert(name.to_owned(), program);
    }
}

impl Programs for SimPrograms {
    fn run(&self, call: ProgramCall) -> LocalFuture<IoResult<ProgramResult>> {
        let program = self.programs.borrow().get(&call.program).cloned();
        let world = self.world.clone();
        Box::pin(async move {
            let Some(program) = program else {
                let context = format!("starting {}: no such program", call.program);
                return Err(IoError::new(IoErrorKind::NotFound, context));
            };
            let began = world.now();
            let (writer, time_limit) = (ProgramWriter::default(), call.time_limit);
            // A program does not see SIGTERM here: it uses its grace, and what it returns then does not count.
            let limit = world.sleep(time_limit + call.grace);
            let code = with_deadline(limit, program(call, writer.clone())).await;
            let code = code.filter(|_| world.now().since(began) <= time_limit);
            let end = code.map_or(ProgramEnd::TimedOut, ProgramEnd::Exited);
            Ok(ProgramResult { end, output: writer.0.take() })
        })
    }
}
