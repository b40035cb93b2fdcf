// Package fakeapi is the common part of tests' fakes of the API server: collections that keep every
// version of every object, so that watches and cached lists can lag behind as real ones do, late
// but in order and complete; and responses in the API server's form. The effect of requests is left
// to the fake.
package fakeapi
