// Package robot speaks to Hetzner's Robot web service, the API of dedicated
// servers, for all of Underlay: one Client serves every controller, so that the
// account's quotas and its login have one owner. It stands beside
// internal/hetzner, which does the same for the cloud, and shares the order of
// requests with it (package requests).
//
// It must never report part of a list as the whole, never repeat a write whose
// fate is unknown (the caller looks first), and never let the password out. It
// must never fail a third login within ten minutes: then the service blocks the
// address that they come from, and with it every other program behind that
// address. What is refused is therefore not tried again before it changes or an
// hour has passed, and nothing is sent that could be the third failure (login.go
// has the rules). A process that is started anew tries once, so whoever uses a
// Client must not exit because its credentials are refused.
//
// The client is written here and not built on github.com/syself/hrobot-go,
// v0.2.7, the one that is maintained: its methods take no context, so a request
// can't be given up and has no priority, and a caller that waits for a quota
// can't be told apart; it has neither vSwitches nor the routing of failover
// addresses; its errors lose the quota that they are about; and its Client
// prints the password. What would remain of it are five structs. The simulator's
// conformance is checked with it (package robotsim).
//
// Facts: a failed login is answered 401, and others have seen 403, which is
// documented for quotas alone; quotas are for each operation and hour, lists have no pages, an account
// without servers answers 404 SERVER_NOT_FOUND, routing a failover address takes
// 40 to 60 seconds (https://robot.hetzner.com/doc/webservice/en.html).
package robot
