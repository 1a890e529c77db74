/** Locks of redlatch for Spring Integration. */
package dev.redlatch.client.spring;
