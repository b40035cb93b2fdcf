// Package inside is the program inside a throw-away server, and how it is asked: to listen, to
// send packets, and to say what came.
//
// The program is one file of Python without dependencies, because it comes as user data, which
// has 32 KiB, and every image with cloud-init has Python. It serves HTTPS with a certificate that
// is made for this server alone, and answers nobody who doesn't prove himself by a key that is in
// the same user data.
//
// It needs no other program of the server, except "ip".
package inside
