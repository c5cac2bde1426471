//! A site that runs, of one command.
