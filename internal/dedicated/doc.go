// Package dedicated tells which dedicated servers an account has, and which of them are
// in a vSwitch: it stands between internal/robot, which speaks to the web service, and
// internal/cloud and internal/vswitch, which ask and know nothing of Robot. It also routes
// failover addresses for addresses/controller.
//
// Robot allows 200 lists an hour, to all programs of the account together, so one
// list is kept for everybody and read again when it is five minutes old, or when
// somebody needs a newer one. Nobody waits for long, and all together once for a
// request that hangs: it goes on while those who wanted it give up, and what failed is
// not tried again for a minute. A list that was read once stays, however long Robot is
// away.
//
// It must never take a failure for an empty list, nor any answer but Robot's own
// SERVER_NOT_FOUND for the word that a server is gone.
package dedicated
