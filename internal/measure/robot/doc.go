// Package robot asks the Robot web service, the API of dedicated servers, what no source tells of
// it, and makes throw-away vSwitches there.
//
// Its rules hold in one place, [Client.do], whatever an experiment asks for:
//
//   - What is changed or removed is a vSwitch that bears the name of a run, as a reply or a list has
//     shown. The name is in the request that makes it. Any other request than a read is not sent.
//     A run puts one server into it, and no other is taken out: one with a server that somebody else
//     has put in stays as it is.
//   - Three failed logins within ten minutes block the address that they come from, and every
//     program behind it. What is refused is not tried again, and a login that must fail is tried
//     only after one that was accepted.
//
// Nothing is tried again by itself, except by [Client.Sweep], and the password is in no error.
//
// Of internal/robot it has the credentials and the refusals, and not the client of the controllers:
// that one can't make vSwitches, because no controller may, and hides what is to be measured, the
// words of a member's status and the status of a refused login.
package robot
