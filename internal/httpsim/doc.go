// Package httpsim is what the simulators of both web services have in common: how an answer is
// made and sent over a socket or in process, the faults that wait for requests, the log of
// requests, and the endpoints for who runs a simulator.
package httpsim
