mod client;
mod endpoint;
mod gateway;
