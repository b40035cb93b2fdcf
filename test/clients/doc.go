// Package clients runs programs that were written for the real cloud against the simulator: the
// released programs of others, as a machine has them installed.
//
// It must never contact another cloud than the simulator: the endpoint is always set.
package clients
