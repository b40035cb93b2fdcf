// Package dedicated caches the dedicated servers that internal/robot, the client of the web service,
// lists, and implements the ports of internal/cloud and internal/vswitch. It also routes failover
// addresses for addresses/controller.
//
// Robot allows 200 lists an hour to all programs of the account together, so the list is shared,
// and read again when it is five minutes old or a caller needs a newer one. Callers wait for a
// short time, and only once for a request that hangs: it continues after they gave up, and a failed
// read is not retried for a minute. The last list is kept for as long as Robot is unavailable.
//
// It must never take a failure for an empty list, or any response but Robot's SERVER_NOT_FOUND
// for the deletion of a server.
package dedicated
