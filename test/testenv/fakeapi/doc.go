// Package fakeapi is what stand-ins for the API server in tests share: collections that keep every
// version of every object, so that watches and cached lists can lag behind as real ones do, late
// but in order and complete; and answers in the API server's form. What requests do is the
// stand-in's.
package fakeapi
