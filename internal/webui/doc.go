// Package webui makes of a look at a cluster what the page of `underlayctl ui` shows:
// Services and their load balancers or addresses, machines with their ranges, the
// route table, how full the pools are, and what doctor finds. A survey.Snapshot goes
// in, a View comes out, which the page draws as it is: what is folded, what is called
// healthy and in which order things stand is decided here, where tests see it.
//
// It must never hold a secret, since all of it goes to a browser, and never judge by
// itself what survey and doctor already judge: the page and the other commands say the
// same of the same look.
//
// The server of the page is the package below it.
package webui
