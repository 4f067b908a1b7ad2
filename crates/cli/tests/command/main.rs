//! The command `millpond`: its subcommands as processes, and the readers and pages behind them.

mod audit;
mod check;
mod color;
mod command;
mod corpus;
mod devices;
mod forgotten;
mod golden;
mod inputs;
mod mutation;
mod page;
mod plan;
mod readers;
mod recorded;
mod replay;
mod view;
