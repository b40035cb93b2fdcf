// Package clients runs programs that were written for the real cloud against the simulator: the
// released third-party programs that are installed on the machine.
//
// It must never contact another cloud than the simulator: the endpoint is always set.
package clients
