// Package httpsim is the common part of the simulators of both web services: HTTP over a socket or
// in process, injected faults, the request log, and the admin endpoints.
package httpsim
