// Package robot is the client of Hetzner's Robot web service, the API of dedicated servers: one
// Client serves all controllers, so that the account's quotas and its login have one owner. It is
// the counterpart of internal/hetzner, and shares the order of requests with it (package requests).
// Servers caches its list of servers for internal/cloud, and Failovers routes failover addresses
// for addresses/controller.
//
// It must never return part of a list as the whole, never repeat a write with an unknown outcome
// (the caller reads first), and never leak the password. It must never fail a third login within
// ten minutes: then the service blocks the source address, and with it every other program
// behind that address. Refused credentials are therefore not tried again until they change or an
// hour has passed, and no request is sent that could be the third failure (login.go has the
// rules). A restarted process tries once, so a user of a Client must not exit because its
// credentials are refused.
//
// The client is not built on github.com/syself/hrobot-go v0.2.7, the maintained one: its methods
// take no context, so requests can't be canceled or have priorities, and callers that wait for a
// quota can't be distinguished; it has neither vSwitches nor the routing of failover addresses;
// its errors lose the quota that they are about; and its Client prints the password. Only five
// structs would remain. The simulator's conformance is checked with it (package robotsim).
//
// Facts: a failed login is answered 401, and some clients received 403, which is documented for
// quotas only; quotas are per operation and hour; lists have no pages; an account without
// servers answers 404 SERVER_NOT_FOUND; routing a failover address takes 40 to 60 seconds
// (https://robot.hetzner.com/doc/webservice/en.html).
package robot
